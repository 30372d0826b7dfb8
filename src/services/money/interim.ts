import type { Database } from "../../../db/client.ts";
import type { LongHolds } from "./interface.ts";
export const interimHolds = (sql: Database): LongHolds => {
  const ended = new Set<string>();
  const end = async (id: string, also?: { run(sql: never): Promise<void> }) => {
    if (ended.has(id)) return;
    await sql.begin(async (t) => {
      await also?.run(t as never);
    });
    ended.add(id);
  };
  return {
    holdLong: async (_r, also) => {
      await sql.begin(async (t) => {
        await also?.run(t);
      });
    },
    settleLong: (id, _f, also) => end(id, also as never),
    releaseLong: (id, also) => end(id, also as never),
  };
};
