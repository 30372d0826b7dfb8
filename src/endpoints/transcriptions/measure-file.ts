import { readSync } from "node:fs";
import type { PassingMedia } from "../../http/passing-files.ts";
import { GatewayError } from "../../lib/errors.ts";
import { measureSound } from "../../lib/sound/measure-sound.ts";
import type { FairWorkThread } from "../../lib/work-thread.ts";

/** What a thread is asked. The file is open, and stays so until it has answered. */
export interface MeasureSoundCall {
  readonly kind: "sound.measure";
  readonly descriptor: number;
  readonly sizeBytes: number;
}

/** What the event loop measures itself: the worst bytes of this length take it some milliseconds. */
const MAX_QUICK_BYTES = 65_536;

/**
 * How long the sound of a file plays, in milliseconds. Rejects with 400 where there is none, and with 503
 * where the thread has too much to do.
 */
export async function measureFile(
  file: PassingMedia,
  thread: FairWorkThread,
  owner: string,
  signal: AbortSignal,
): Promise<number> {
  const { sizeBytes } = file;
  const durationMs =
    sizeBytes <= MAX_QUICK_BYTES
      ? measureBytes(Buffer.from(await file.bytes()))
      : await file.lend((descriptor) => {
          const call: MeasureSoundCall = { kind: "sound.measure", descriptor, sizeBytes };
          return thread.call<number>(owner, call, signal);
        });
  if (durationMs) return durationMs;
  throw new GatewayError(
    "invalid_body",
    `The form's part "file" holds no sound that can be read.`,
    {
      param: "file",
    },
  );
}

function measureBytes(bytes: Buffer): number | undefined {
  return measureSound({
    sizeBytes: bytes.length,
    readInto: (buffer, position) => bytes.copy(buffer, 0, position),
  });
}

/** In the thread; 0 where there is no sound. */
export function measureOpenFile({ descriptor, sizeBytes }: MeasureSoundCall): number {
  const durationMs = measureSound({
    sizeBytes,
    readInto: (buffer, position) =>
      readSync(descriptor, buffer, 0, Math.min(buffer.length, sizeBytes - position), position),
  });
  return durationMs ?? 0;
}
