import { effect, signal } from "@preact/signals";
import { endSession, send, session } from "./api.ts";
import { readServerEvents } from "./server-events.ts";

/** Number of changes that the gateway has reported. Pages with figures reload on each change. */
export const changes = signal(0);
/** True while the stream of changes is open. */
export const isLive = signal(false);

const FIRST_DELAY_MS = 1_000;
const MAX_DELAY_MS = 30_000;

const isShown = signal(!document.hidden);

/**
 * Follows changes while there is a session and the page is visible. A browser opens at most six connections
 * to one host, so background pages with open streams would block the next page.
 */
export function startLive(): void {
  document.addEventListener("visibilitychange", () => {
    isShown.value = !document.hidden;
  });
  let stop = new AbortController();
  effect(() => {
    stop.abort();
    if (!session.value || !isShown.value) return;
    stop = new AbortController();
    void follow(stop.signal);
  });
}

async function follow(signal: AbortSignal): Promise<void> {
  let delayMs = FIRST_DELAY_MS;
  while (!signal.aborted) {
    try {
      const headers = { accept: "text/event-stream" };
      const response = await send("GET", "events", { signal, headers, isUnattended: true });
      isLive.value = true;
      delayMs = FIRST_DELAY_MS;
      // Figures may have changed while no stream was open.
      changes.value++;
      await readServerEvents(response, ({ event }) => {
        if (event === "changed") changes.value++;
        if (event === "ended") {
          endSession("Your key was revoked, or your session has ended. Sign in again.");
        }
      });
    } catch {
      // The next attempt succeeds or reports the error.
    }
    isLive.value = false;
    await new Promise((resolve) => setTimeout(resolve, delayMs));
    delayMs = Math.min(delayMs * 2, MAX_DELAY_MS);
  }
}
