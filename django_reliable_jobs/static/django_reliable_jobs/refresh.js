// Shows parts of a page anew every few seconds, while somebody looks. Without it, the page is as it was when loaded.
"use strict";

(function () {
    // A page that takes long to make is asked for less often.
    const PATIENCE = 10;

    function follow(live) {
        const body = live.querySelector("[data-refresh-body]");
        const button = live.querySelector("button[data-pause]");
        const status = live.querySelector("[data-stale]");
        const pause = Number(live.dataset.refreshSeconds) * 1000;
        let isPaused = false;
        let timer = null;

        // What a person has opened stays open, and what holds the focus is not taken away.
        function show(html) {
            const fresh = document.createElement("template");
            fresh.innerHTML = html;
            body.querySelectorAll("details[data-key]").forEach((each) => {
                const same = Array.from(fresh.content.querySelectorAll("details[data-key]"))
                    .find((other) => other.dataset.key === each.dataset.key);
                if (same) {
                    same.open = each.open;
                }
            });
            body.replaceChildren(fresh.content);
        }

        function isInUse() {
            const selection = window.getSelection();
            return body.contains(document.activeElement) || (
                selection && !selection.isCollapsed && body.contains(selection.anchorNode)
            );
        }

        async function update() {
            let next = pause;
            const begin = Date.now();
            try {
                const response = await fetch(live.dataset.refreshUrl, {credentials: "same-origin", redirect: "error"});
                if (!response.ok) {
                    throw new Error(response.statusText);
                }
                const html = await response.text();
                if (!isPaused && !isInUse()) {
                    show(html);
                }
                live.classList.remove("reliable-stale");
                status.textContent = "";
                next = Math.max(pause, PATIENCE * (Date.now() - begin));
                if (response.headers.get("X-Refresh") === "stop") {
                    return;
                }
            } catch (error) {
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
