// Shows parts of a page anew every few seconds, while somebody looks. Without it, the page is as it was when loaded.
"use strict";

(function () {
    // A page that takes long to make is asked for less often; one that does not come is given up, and asked for rarely.
    const PATIENCE = 10;
    const LONGEST_ANSWER = 30000;
    const LONGEST_PAUSE = 60000;

    // What a person has opened stays open.
    function keepOpen(body, fresh) {
        body.querySelectorAll("details[data-key]").forEach((each) => {
            const same = fresh.querySelector(`details[data-key="${CSS.escape(each.dataset.key)}"]`);
            if (same) {
                same.open = each.open;
            }
        });
    }

    // Returns what is in the place of the element that has the focus; undefined: nothing is.
    function successor(focused, body, fresh) {
        const details = focused.closest("details[data-key]");
        if (details && focused.tagName === "SUMMARY") {
            return fresh.querySelector(`details[data-key="${CSS.escape(details.dataset.key)}"] > summary`);
        }
        const alike = (root) => Array.from(root.querySelectorAll(focused.tagName))
            .filter((each) => each.outerHTML === focused.outerHTML);
        return alike(fresh)[alike(body).indexOf(focused)];
    }

    function announced(root) {
        return Array.from(root.querySelectorAll("[data-announce]"), (each) => each.textContent.trim()).join(" ");
    }

    function isSelectedIn(body) {
        const selection = window.getSelection();
        return selection && !selection.isCollapsed && body.contains(selection.anchorNode);
    }

    function follow(live) {
        const body = live.querySelector("[data-refresh-body]");
        const button = live.querySelector("button[data-pause]");
        const status = live.querySelector("[data-stale]");
        const news = live.querySelector("[data-news]");
        const pause = Number(live.dataset.refreshSeconds) * 1000;
        let isPaused = false;
        let failures = 0;
        let timer = null;

        // What holds the focus keeps it; if it is gone, or a text is selected, the page waits. Returns whether it is shown.
        function show(html) {
            const template = document.createElement("template");
            template.innerHTML = html;
            const fresh = template.content;
            const focused = body.contains(document.activeElement) ? document.activeElement : null;
            const next = focused ? successor(focused, body, fresh) : null;
            if (isSelectedIn(body) || (focused && !next)) {
                return false;
            }
            const said = announced(fresh);
            if (said !== announced(body)) {
                news.textContent = said;
            }
            keepOpen(body, fresh);
            body.replaceChildren(fresh);
            if (next) {
                next.focus({preventScroll: true});
            }
            return true;
        }

        async function update() {
            let next = pause;
            const begin = Date.now();
            try {
                const signal = AbortSignal.timeout(LONGEST_ANSWER);
                const response = await fetch(
                    live.dataset.refreshUrl, {credentials: "same-origin", redirect: "error", signal}
                );
                if (!response.ok) {
                    throw new Error(response.statusText);
                }
                const html = await response.text();
                const isShown = !isPaused && show(html);
                status.textContent = "";
                failures = 0;
                live.classList.remove("reliable-stale");
                next = Math.max(pause, PATIENCE * (Date.now() - begin));
                if (response.headers.get("X-Refresh") === "stop" && isShown) {
                    return;
                }
            } catch (error) {
                failures += 1;
                next = Math.min(pause * 2 ** failures, LONGEST_PAUSE);
                live.classList.add("reliable-stale");
                status.textContent = status.dataset.stale;
            }
            plan(next);
        }

        function plan(milliseconds) {
            clearTimeout(timer);
            timer = null;
            if (!isPaused && !document.hidden) {
                timer = setTimeout(update, milliseconds);
            }
        }

        button.addEventListener("click", () => {
            isPaused = !isPaused;
            button.textContent = isPaused ? button.dataset.resume : button.dataset.pause;
            button.setAttribute("aria-pressed", String(isPaused));
            plan(0);
        });
        document.addEventListener("visibilitychange", () => plan(0));
        button.parentElement.hidden = false;
        plan(pause);
    }

    document.querySelectorAll(".reliable-live").forEach(follow);
}());
