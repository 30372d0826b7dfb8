import { join } from "node:path";
import type { Database } from "../../db/client.ts";
import type { GroupCommit } from "../../db/ledger/group-commit.ts";
import type { GatewayConfig } from "../config.ts";
import type { Clock } from "../lib/clock.ts";
import { OwedRefunds } from "../money/owed-refunds.ts";
import { NoteFile } from "../storage/note-file.ts";

const FOLDER = "refunds-owed";

interface OwedRefundsParts {
  readonly config: GatewayConfig;
  readonly sql: Database;
  readonly instance: { readonly id: string };
  readonly clock: Clock;
  onError(error: unknown): void;
  /** Ends the process at once, because it was declared dead. */
  onFenced(): void;
}

/** Those who ask for the notes and are made after them. */
interface Noting {
  readonly ledger: GroupCommit;
  readonly money: { noteUnanswered(): void };
  readonly ticker: { noteUndelivered(): void };
}

/** What was not delivered is noted in a file of this instance, beside those of its predecessors. */
export function composeOwedRefunds({ config, onFenced, ...parts }: OwedRefundsParts) {
  let noting: Noting | undefined;
  const notes = new OwedRefunds({
    ...parts,
    file: new NoteFile(join(config.dataDir, FOLDER), parts.instance.id),
    submit: (effect) => noting!.ledger.submit([effect]),
  });
  return {
    notes,
    onFenced(): void {
      noting?.money.noteUnanswered();
      noting?.ticker.noteUndelivered();
      onFenced();
    },
    begin(those: Noting): void {
      noting = those;
      notes.watch();
    },
  };
}
