"""Fields of forms that Django has not, or not as well: spans, moments that stay as they are, zones to choose from."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import available_timezones

from django import forms
from django.contrib.admin.widgets import AdminSplitDateTime, AdminTextInputWidget
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.spans import parse_span, write_span


class TextWithSuggestions(AdminTextInputWidget):
    """A text input that suggests the names of time zones, without a script."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        attrs = {**(attrs or {}), "list": f"{name}-suggestions"}
        options = format_html_join("", '<option value="{}">', ((zone,) for zone in sorted(available_timezones())))
        text = super().render(name, value, attrs, renderer)
        return format_html('{}<datalist id="{}-suggestions">{}</datalist>', text, name, options)


class SpanField(forms.CharField):
    """A span as people write it: 90s, 15m, 1h30m, 2d."""

    widget = AdminTextInputWidget

    def prepare_value(self, value: Any) -> Any:
        return write_span(value) if isinstance(value, timedelta) else value

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        if not text:
            return None
        try:
            return parse_span(text)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(super().has_changed(self.prepare_value(initial), data))


class DateAndTime(AdminSplitDateTime):
    """Django's two inputs, each with a name for who can't see it: before 6.1, they have none."""

    def __init__(self, attrs: Any = None) -> None:
        super().__init__(attrs)
        for each, name in zip(self.widgets, (_("Date"), _("Time")), strict=True):
            each.attrs["aria-label"] = name


class MomentField(forms.SplitDateTimeField):
    """A moment that stays as it is while nobody touches it: its seconds' parts, its place in a repeated hour."""

    widget: Any = DateAndTime
    kept: datetime | None = None

    def clean(self, value: Any) -> Any:
        if self.kept is not None:
            shown = self.widget.decompress(self.kept)
            if [each.format_value(part) for each, part in zip(self.widget.widgets, shown, strict=True)] == value:
                return self.kept
        return super().clean(value)
