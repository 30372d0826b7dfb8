import type { StreamRelay } from "./stream-relay.ts";

/**
 * Reads on while the first checkpoint becomes durable. True where the provider came to its end in the
 * ordinary way before that: such a stream needs no checkpoint, its charge is made durable instead, before
 * anything leaves.
 */
export function readAheadUntil(
  covered: Promise<void>,
  relay: StreamRelay,
  maxBytes: number,
  mayReadOn: () => boolean,
): Promise<boolean> {
  let isCovered = false;
  const end = () => {
    isCovered = true;
    return false;
  };
  const reading = readAhead(relay, maxBytes, () => !isCovered && mayReadOn());
  // A checkpoint that fails is told to who waits for it.
  return Promise.race([covered.then(end, end), reading]);
}

async function readAhead(
  relay: StreamRelay,
  maxBytes: number,
  mayReadOn: () => boolean,
): Promise<boolean> {
  try {
    while (mayReadOn() && relay.pendingBytes < maxBytes) {
      if (relay.rewriter.failure) return false;
      if (!(await relay.read())) return mayReadOn() && relay.rewriter.hasFinished;
    }
  } catch {
    // What came before is still to be delivered; the failure shows again when reading goes on.
  }
  return false;
}
