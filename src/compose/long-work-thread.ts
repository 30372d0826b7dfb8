import type { LongBodyCall } from "../endpoints/chat-completions/long-body.ts";
import { doLongBodyWork } from "../endpoints/chat-completions/long-body-work.ts";
import { serveCalls } from "../lib/work-thread.ts";

/** The thread for work that would hold the event loop for too long. */
serveCalls<LongBodyCall>(doLongBodyWork, (result) =>
  result instanceof Uint8Array ? [result.buffer as ArrayBuffer] : [],
);
