// The live preview of a schedule's next runs. Without it, the button "Preview" does the same by a request.
"use strict";

(function () {
    const FIELDS = {
        cron: ["expression", "timezone", "on_gap", "on_fold"],
        every: ["interval", "anchor"],
        once: ["at"],
    };
    const PAUSE_MILLISECONDS = 250;

    function element(name, text, className) {
        const created = document.createElement(name);
        if (text) {
            created.textContent = text;
        }
        if (className) {
            created.className = className;
        }
        return created;
    }

    function list(items, className) {
        const created = element("ul", "", className);
        items.forEach((item) => created.appendChild(element("li", item)));
        return created;
    }

    function tableOf(preview, labels) {
        const table = element("table", "", "schedule-table");
        const columns = [["utc", "UTC"]];
        if (preview.timezone !== "UTC") {
            columns.unshift(["local", preview.timezone]);
        }
        if (preview.runs.some((run) => run.note)) {
            columns.push(["note", labels.note]);
        }
        const heading = table.createTHead().insertRow();
        columns.forEach(([, text]) => heading.appendChild(element("th", text)));
        const body = table.createTBody();
        preview.runs.forEach((run) => {
            const row = body.insertRow();
            row.className = run.note ? "schedule-touched" : "";
            columns.forEach(([name]) => row.appendChild(element("td", run[name])));
        });
        return table;
    }

    function show(body, preview, labels) {
        body.replaceChildren();
        if (preview.errors) {
            body.appendChild(list(preview.errors, "schedule-errors"));
            return;
        }
        body.appendChild(element("p", preview.description, "schedule-description"));
        if (preview.warnings.length) {
            body.appendChild(list(preview.warnings, "schedule-warnings"));
        }
        body.appendChild(preview.runs.length ? tableOf(preview, labels) : element("p", labels.never));
    }

    function showFieldsOf(form, kind) {
        Object.entries(FIELDS).forEach(([each, names]) => names.forEach((name) => {
            const row = form.querySelector(`.form-row.field-${name}`);
            if (row) {
                row.classList.toggle("schedule-hidden", each !== kind);
            }
        }));
    }

    document.addEventListener("DOMContentLoaded", () => {
        const panel = document.getElementById("schedule-preview");
        const form = panel && panel.closest("form");
        if (!form || !form.elements.kind) {
            return;
        }
        const body = document.getElementById("schedule-preview-body");
        const labels = {note: panel.dataset.note, never: panel.dataset.never};
        let timer = null;
        let asked = 0;

        async function update() {
            const number = ++asked;
            try {
                const response = await fetch(panel.dataset.url, {
                    method: "POST", body: new FormData(form), credentials: "same-origin",
                });
                const preview = await response.json();
                if (number === asked) {
                    body.classList.remove("schedule-stale");
                    show(body, preview, labels);
                }
            } catch (error) {
                body.classList.add("schedule-stale");
            }
        }

        function changed() {
            showFieldsOf(form, form.elements.kind.value);
            clearTimeout(timer);
            timer = setTimeout(update, PAUSE_MILLISECONDS);
        }

        panel.querySelectorAll(".schedule-preview-button").forEach((each) => each.classList.add("schedule-hidden"));
        form.addEventListener("input", changed);
        form.addEventListener("change", changed);
        // The calendar and clock of the admin change values without an event.
        form.addEventListener("click", () => setTimeout(changed, 0));
        showFieldsOf(form, form.elements.kind.value);
        if (form.elements.expression.value || form.elements.interval.value || form.elements.at_0.value) {
            update();
        }
    });
}());
