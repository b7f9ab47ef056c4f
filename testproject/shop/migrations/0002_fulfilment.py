from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("shop", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Payment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=64, unique=True)),
                ("order_id", models.BigIntegerField()),
                ("amount", models.DecimalField(decimal_places=2, max_digits=12)),
                ("requests", models.PositiveIntegerField(default=0)),
                ("charged_at", models.DateTimeField(blank=True, null=True)),
                ("refund_key", models.CharField(blank=True, default="", max_length=64)),
                ("refunded_at", models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Stock",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("product", models.CharField(max_length=100, unique=True)),
                ("quantity", models.PositiveIntegerField()),
            ],
        ),
        migrations.AddField(
            model_name="order",
            name="card",
            field=models.CharField(default="works", max_length=20),
        ),
        migrations.CreateModel(
            name="Shipment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("tracking", models.CharField(blank=True, default="", max_length=40)),
                ("cancelled", models.BooleanField(default=False)),
                (
                    "order",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="shipments", to="shop.order"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("cancelled", False)), fields=("order",), name="shop_one_shipment"
                    )
                ],
            },
        ),
    ]
