import type { Served } from "../upstream/served.ts";
import { billsByTag, brokenRules, look, orphanAttempts, storedResponses } from "./books.ts";
import { TOKEN } from "./kinds.ts";
import type { Sent } from "./load.ts";
import type { UpstreamProcess } from "./upstream-process.ts";
import { breachesOf, type Produced } from "./verdict.ts";

const CHARACTERS_PER_TOKEN = TOKEN.length;
const NOTHING: Produced = { tokens: 0, sentAfterMs: () => Number.NEGATIVE_INFINITY };

/**
 * Holds the books against what the clients have seen of the requests that have ended, and what the
 * upstream has served. Returns each violation in words; `count` receives how often each was charged.
 */
export async function auditOf(
  databaseUrl: string,
  upstream: UpstreamProcess,
  finished: readonly Sent[],
  count?: (sent: Sent, charges: number) => void,
): Promise<string[]> {
  const produced = new Map<string, Produced>();
  for (const served of await upstream.takeServed()) {
    produced.set(String(served.requestBody?.user), producedBy(served));
  }
  return look(databaseUrl, async (sql) => {
    const violations = await brokenRules(sql);
    const bills = await billsByTag(sql);
    const stored = await storedResponses(sql);
    for (const sent of finished) {
      const own = bills.get(sent.tag) ?? [];
      count?.(sent, own.length);
      violations.push(...breachesOf(sent, own, produced.get(sent.tag) ?? NOTHING));
      const isLost = sent.kind.isResponse && sent.isWhole && !stored.has(own[0]?.requestId ?? "");
      if (isLost)
        violations.push(`${sent.tag} (${sent.kind.name}): a whole response is not stored`);
    }
    const orphans = await orphanAttempts(sql);
    if (orphans > 0) violations.push(`M3 ${orphans} attempts are nobody's`);
    return violations;
  });
}

function producedBy({ contentCharactersSent, contentMarks }: Served): Produced {
  return {
    tokens: contentCharactersSent / CHARACTERS_PER_TOKEN,
    sentAfterMs(place) {
      const mark = contentMarks.findLast(
        ({ characters }) => characters <= place * CHARACTERS_PER_TOKEN,
      );
      return mark?.atMs ?? Number.NEGATIVE_INFINITY;
    },
  };
}
