import { readSync } from "node:fs";
import type { SpooledMedia } from "../../../http/spooled-uploads.ts";
import { GatewayError } from "../../../lib/errors.ts";
import { measureSound, type SoundLength } from "../../../lib/sound/measure-sound.ts";
import type { FairWorkThread } from "../../../lib/work-thread.ts";

/** A call of the work thread. The caller keeps the file open until the thread has answered. */
export interface MeasureSoundCall {
  readonly kind: "sound.measure";
  readonly descriptor: number;
  readonly sizeBytes: number;
}

/** Maximum bytes that the event loop measures itself. The slowest file of this size takes a few milliseconds. */
const MAX_QUICK_BYTES = 65_536;

/**
 * Returns the playing time of an audio file. Rejects with 400 if the file has no audio that can be measured,
 * and with 503 if the thread is overloaded.
 */
export async function measureFile(
  file: SpooledMedia,
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
    `The form's part "file" has no audio that can be measured: it is damaged, or its codec is not supported.`,
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

/** Measures an open file in the work thread. Returns undefined if the file has no audio that can be measured. */
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
