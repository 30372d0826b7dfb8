import type { Database } from "../client.ts";

export interface ServerVersion {
  readonly major: number;
  /** As the server tells it, such as "18.4" or "15.19 (Debian 15.19-0+deb12u1)". */
  readonly text: string;
}

export async function readServerVersion(sql: Database): Promise<ServerVersion> {
  const [row] = await sql<{ number: number; text: string }[]>`
    SELECT current_setting('server_version_num')::int AS number,
      current_setting('server_version') AS text`;
  return { major: Math.floor(row!.number / 10_000), text: row!.text };
}
