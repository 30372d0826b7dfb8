import { effect, signal } from "@preact/signals";
import { endSession, send, session } from "./api.ts";
import { readServerEvents } from "./server-events.ts";

/** Counts the changes of figures that the gateway has reported; pages that show figures load them again. */
export const changes = signal(0);
/** Whether changes are being reported. */
export const isLive = signal(false);

const FIRST_DELAY_MS = 1_000;
const LONGEST_DELAY_MS = 30_000;

const isShown = signal(!document.hidden);

/**
 * Follows changes as long as there is a session and the page is shown. A browser opens six connections to one
 * address, so that pages in the background that held one each would keep the next page from loading.
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
      // What changed while none was open.
      changes.value++;
      await readServerEvents(response, ({ event }) => {
        if (event === "changed") changes.value++;
        if (event === "ended") {
          endSession("Your key was revoked, or your session has ended. Sign in again.");
        }
      });
    } catch {
      // Whatever it was: the next attempt says so, or succeeds.
    }
    isLive.value = false;
    await new Promise((resolve) => setTimeout(resolve, delayMs));
    delayMs = Math.min(delayMs * 2, LONGEST_DELAY_MS);
  }
}
