"""A form made of a task's signature: a field for each argument, checked once more by the enqueue itself."""

from __future__ import annotations

import json
from inspect import Parameter
from typing import Any, get_type_hints

from django import forms
from django.contrib.admin.widgets import (
    AdminIntegerFieldWidget,
    AdminTextareaWidget,
    AdminTextInputWidget,
)
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.admin.form_fields import DateAndTime
from django_reliable_jobs.registry import Task

OWN = "own_"  # before the names of fields that are no arguments
PLAIN: dict[Any, type[forms.Field]] = {str: forms.CharField, int: forms.IntegerField, float: forms.FloatField}


class EnqueueForm(forms.Form):
    """What a job is made of, besides its arguments."""

    def __init__(self, task: Task[..., Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.task = task
        self.parameters = [
            each for each in task.signature.parameters.values() if each.kind is not Parameter.VAR_POSITIONAL
        ]
        hints = _hints_of(task)
        for each in self.parameters:
            self.fields[each.name] = _field_for(each, hints.get(each.name), is_sensitive=each.name in task.sensitive)
        self.fields[f"{OWN}run_after"] = forms.SplitDateTimeField(
            label=_("Not before"), required=False, widget=DateAndTime, help_text=_("Left empty: now.")
        )
        self.fields[f"{OWN}queue_name"] = forms.CharField(
            label=_("Queue"),
            required=False,
            max_length=64,
            widget=AdminTextInputWidget,
            help_text=_("Left empty: %s") % task.queue_name,
        )
        self.fields[f"{OWN}priority"] = forms.IntegerField(
            label=_("Priority"),
            required=False,
            min_value=-100,
            max_value=100,
            widget=AdminIntegerFieldWidget,
            help_text=_("Left empty: %s") % task.priority,
        )

    def clean(self) -> dict[str, Any]:
        for each in self.parameters:
            value = self.cleaned_data.get(each.name)
            if each.kind is Parameter.VAR_KEYWORD and value is not None and not isinstance(value, dict):
                self.add_error(each.name, _("Names and values are needed: {…}"))
        return self.cleaned_data

    def choices(self) -> dict[str, Any]:
        """Return what was chosen for `Task.using()`."""
        names = ("run_after", "queue_name", "priority")
        chosen = {name: self.cleaned_data[f"{OWN}{name}"] for name in names}
        return {name: value for name, value in chosen.items() if value not in (None, "")}

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments; those left empty that have a default are left out."""
        args, kwargs = list[Any](), dict[str, Any]()
        for each in self.parameters:
            value = self.cleaned_data[each.name]
            if each.kind is Parameter.VAR_KEYWORD:
                kwargs |= value or {}
            elif each.default is not Parameter.empty and value in (None, "") and not self.data.get(each.name):
                continue
            elif each.kind is Parameter.POSITIONAL_ONLY:
                args.append(value)
            else:
                kwargs[each.name] = value
        return args, kwargs


class JSONArgument(forms.JSONField):
    """Any JSON; empty where there is a default."""

    widget = AdminTextareaWidget

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(widget=AdminTextareaWidget(attrs={"rows": 2, "class": "vLargeTextField code"}), **kwargs)

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else super().prepare_value(value)


def _hints_of(task: Task[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(task.function)
    except Exception:  # an annotation that names what is not there when the program runs
        return {}


def _field_for(parameter: Parameter, hint: Any, *, is_sensitive: bool) -> forms.Field:
    has_default = parameter.default is not Parameter.empty
    options: dict[str, Any] = {"label": parameter.name, "required": not has_default}
    if parameter.kind is Parameter.VAR_KEYWORD:
        help_text = _('Further arguments as JSON: {"name": "value"}')
        return JSONArgument(label=parameter.name, required=False, help_text=help_text)
    if hint is bool:
        return forms.BooleanField(
            label=parameter.name, required=False, initial=parameter.default if has_default else False
        )
    if has_default and not is_sensitive:
        options["help_text"] = _("Left empty: %s") % json.dumps(parameter.default, ensure_ascii=False, default=str)
    plain = PLAIN.get(hint)
    if plain is None:
        options.setdefault("help_text", _('As JSON: 42, "text", [1, 2], {"a": null}'))
        return JSONArgument(**options)
    if plain is forms.CharField:
        # A browser that fills in the password of the admin would send it as an argument.
        secret = forms.PasswordInput(attrs={"autocomplete": "new-password"})
        return forms.CharField(widget=secret if is_sensitive else AdminTextInputWidget, strip=False, **options)
    return plain(**options)
