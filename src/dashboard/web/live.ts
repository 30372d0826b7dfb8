import { effect, signal } from "@preact/signals";
import { endSession, send, session } from "./api.ts";
import { readServerEvents } from "./server-events.ts";

/** Counts the changes of figures that the gateway has reported; pages that show figures load them again. */
export const changes = signal(0);
/** Whether changes are being reported. */
export const isLive = signal(false);

const FIRST_DELAY_MS = 1_000;
const LONGEST_DELAY_MS = 30_000;

/** Follows changes as long as there is a session. */
export function startLive(): void {
  let stop = new AbortController();
  effect(() => {
    stop.abort();
    if (!session.value) return;
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
