"""The shop in the Django admin."""

from __future__ import annotations

from django.contrib import admin

from testproject.shop.models import Customer, Invoice, Order, OrderLine, Payment, Shipment, Stock


class OrderLineInline(admin.TabularInline):
    """The lines of an order, on its page."""

    model = OrderLine
    extra = 1


@admin.register(Customer)
class CustomerAdmin(admin.ModelAdmin):
    """Customers, found by name or address."""

    list_display = ["name", "email"]
    search_fields = ["name", "email"]


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    """Orders with their lines, newest first."""

    list_display = ["__str__", "customer", "placed_at"]
    list_select_related = ["customer"]
    ordering = ["-placed_at"]
    inlines = [OrderLineInline]


@admin.register(Invoice)
class InvoiceAdmin(admin.ModelAdmin):
    """Invoices, newest first."""

    list_display = ["__str__", "total", "made_at", "sent_at"]
    ordering = ["-made_at"]


@admin.register(Stock)
class StockAdmin(admin.ModelAdmin):
    """What there is."""

    list_display = ["product", "quantity"]


@admin.register(Payment)
class PaymentAdmin(admin.ModelAdmin):
    """The provider's ledger, newest first."""

    list_display = ["__str__", "amount", "charged_at", "refunded_at"]
    ordering = ["-pk"]


@admin.register(Shipment)
class ShipmentAdmin(admin.ModelAdmin):
    """What the warehouse was asked for."""

    list_display = ["__str__", "tracking", "cancelled"]
