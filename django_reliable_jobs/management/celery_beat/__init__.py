"""Moving in from django-celery-beat: its rows are read, translated, and become schedules of ours."""
