"""Settings of the test project, on which the tests and the demo run.

Taken from the environment, or from a file `.env` beside `manage.py`: DATABASE_URL (by default an
embedded PostgreSQL in the folder `.postgres`), DEBUG, SECRET_KEY and LOG_LEVEL.
"""

from __future__ import annotations

from pathlib import Path

import django
import environ

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()
if (BASE_DIR / ".env").exists():
    env.read_env(BASE_DIR / ".env")

DEBUG = env.bool("DEBUG", default=True)
SECRET_KEY = env.str("SECRET_KEY", default="only-for-the-test-project-on-your-own-machine")
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", "testserver"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_reliable_jobs",
    "testproject.shop",
    "testproject.benchmarks",
    "testproject.chaos",
    "testproject.exercises",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "testproject.urls"
WSGI_APPLICATION = "testproject.wsgi.application"
ASGI_APPLICATION = "testproject.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

if "DATABASE_URL" in env:
    DATABASES = {"default": env.db_url("DATABASE_URL")}
else:
    # Here, as it needs an operating system with `fcntl`.
    from testproject.embedded.server import EmbeddedServer

    DATABASES = {"default": EmbeddedServer(BASE_DIR / ".postgres").database}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "static/"

MAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": MAIL_BACKEND}}
else:
    EMAIL_BACKEND = MAIL_BACKEND
DEFAULT_FROM_EMAIL = "shop@example.com"

LOG_LEVEL = env.str("LOG_LEVEL", default="INFO")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "terminal": {
            "format": "{asctime} {levelname:<7} {message}",
            "datefmt": "%H:%M:%S",
            "style": "{",
        },
    },
    "handlers": {
        "terminal": {"class": "logging.StreamHandler", "formatter": "terminal"},
    },
    "loggers": {
        "django_reliable_jobs": {"handlers": ["terminal"], "level": LOG_LEVEL, "propagate": True},
        "testproject": {"handlers": ["terminal"], "level": LOG_LEVEL, "propagate": True},
    },
}
