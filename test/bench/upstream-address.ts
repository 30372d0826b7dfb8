import { readFileSync } from "node:fs";
import { join } from "node:path";

const FOLDER = join(import.meta.dir, "..", "fixtures", "tls");
/** Made for 127.0.0.1, valid for a hundred years; it is its own authority. */
export const UPSTREAM_CERTIFICATE_PATH = join(FOLDER, "bench-upstream.crt");
export const UPSTREAM_KEY_PATH = join(FOLDER, "bench-upstream.key");

/** What a process needs in its environment to trust the upstream. */
export const TRUST = { NODE_EXTRA_CA_CERTS: UPSTREAM_CERTIFICATE_PATH } as const;

export function upstreamUrl(port: number): string {
  return `https://127.0.0.1:${port}`;
}

/** How many streams the upstream is sending. */
export async function countOpenStreams(port: number): Promise<number> {
  const ca = readFileSync(UPSTREAM_CERTIFICATE_PATH, "utf8");
  const answer = await fetch(`${upstreamUrl(port)}/open-streams`, { tls: { ca } });
  return ((await answer.json()) as { openStreams: number }).openStreams;
}
