"""The shop's forms."""

from __future__ import annotations

from decimal import Decimal

from django import forms

from testproject.shop.models import Customer


class OrderForm(forms.Form):
    """An order of one product."""

    customer = forms.ModelChoiceField(Customer.objects.order_by("name"))
    product = forms.CharField(max_length=100)
    quantity = forms.IntegerField(min_value=1, initial=1)
    unit_price = forms.DecimalField(min_value=Decimal(0), max_digits=10, decimal_places=2)
