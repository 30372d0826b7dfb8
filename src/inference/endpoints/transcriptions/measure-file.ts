import { readSync } from "node:fs";
import type { PassingMedia } from "../../../http/passing-files.ts";
import { GatewayError } from "../../../lib/errors.ts";
import { measureSound, type SoundLength } from "../../../lib/sound/measure-sound.ts";
import type { FairWorkThread } from "../../../lib/work-thread.ts";

/** What a thread is asked. The file is open, and stays so until it has answered. */
export interface MeasureSoundCall {
  readonly kind: "sound.measure";
  readonly descriptor: number;
  readonly sizeBytes: number;
}

/** What the event loop measures itself: the worst bytes of this length take it some milliseconds. */
const MAX_QUICK_BYTES = 65_536;

/**
 * How long the sound of a file plays. Rejects with 400 if nothing in it can be measured, and with 503 if the thread
 * has too much to do.
 */
export async function measureFile(
  file: PassingMedia,
  thread: FairWorkThread,
  owner: string,
  signal: AbortSignal,
): Promise<SoundLength> {
  const { sizeBytes } = file;
  const length =
    sizeBytes <= MAX_QUICK_BYTES
      ? measureBytes(Buffer.from(await file.bytes()))
      : await file.lend((descriptor) => {
          const call: MeasureSoundCall = { kind: "sound.measure", descriptor, sizeBytes };
          return thread.call<SoundLength | undefined>(owner, call, signal);
        });
  if (length) return length;
  throw new GatewayError(
    "invalid_body",
    `The form's part "file" holds no sound that can be measured: it is damaged, or of a codec that is not supported.`,
    {
      param: "file",
    },
  );
}

function measureBytes(bytes: Buffer): SoundLength | undefined {
  return measureSound({
    sizeBytes: bytes.length,
    readInto: (buffer, position) => bytes.copy(buffer, 0, position),
  });
}

/** Measures in the thread. Undefined if nothing can be measured. */
export function measureOpenFile({
  descriptor,
  sizeBytes,
}: MeasureSoundCall): SoundLength | undefined {
  return measureSound({
    sizeBytes,
    readInto: (buffer, position) =>
      readSync(descriptor, buffer, 0, Math.min(buffer.length, sizeBytes - position), position),
  });
}
