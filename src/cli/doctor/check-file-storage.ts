import type { GatewayConfig } from "../../config.ts";
import { systemClock } from "../../lib/clock.ts";
import { newId } from "../../lib/ids.ts";
import type { FileStorage } from "../../storage/interface.ts";
import { S3Storage } from "../../storage/s3.ts";
import { within } from "../within.ts";
import { type Finding, ok, wrong } from "./finding.ts";

const NAME = "file storage";
const TIMEOUT_MS = 5_000;

/** Whether the bucket takes an object, gives it back, and lets it be removed, where one is configured. */
export async function checkFileStorage({ s3 }: Pick<GatewayConfig, "s3">): Promise<Finding[]> {
  if (s3 === undefined) return [];
  try {
    await within(TIMEOUT_MS, tryOut(new S3Storage(s3, systemClock)));
    return [ok(NAME, `bucket ${s3.bucket} takes, gives and removes`)];
  } catch (error) {
    return [wrong(NAME, `bucket ${s3.bucket}: ${(error as Error).message}`)];
  }
}

async function tryOut(storage: FileStorage): Promise<void> {
  const key = newId("obj");
  const writer = storage.write(key);
  await writer.write(new TextEncoder().encode(key));
  await writer.finish();
  const read = await new Response(await storage.read(key)).text();
  // Looks for unfinished uploads too, for which credentials often lack the right.
  await storage.remove(key);
  if (read !== key) throw new Error("what was read is not what was written");
}
