import { authored } from "../../../db/authored.ts";
import { type Database, sqlState } from "../../../db/client.ts";
import {
  changeDefinition,
  type DefinitionKind,
  type DefinitionLimits,
  type DefinitionRecord,
  deleteDefinition,
  findDefinition,
  insertDefinition,
  listDefinitions,
} from "../../../db/queries/definitions.ts";
import type { Author } from "../../lib/author.ts";
import type { Clock } from "../../lib/clock.ts";
import { type ErrorCode, GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import type { DefinitionCache } from "./known-definitions.ts";

export interface DefinitionsDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly known: DefinitionCache;
}

interface KindOfDefinition {
  readonly prefix: "pre" | "gr";
  readonly notFound: ErrorCode;
  readonly limits: DefinitionLimits;
}

const MEBIBYTE = 1_048_576;

const KINDS: Readonly<Record<DefinitionKind, KindOfDefinition>> = {
  preset: {
    prefix: "pre",
    notFound: "preset_not_found",
    limits: { maxCount: 200, maxBytes: 2 * MEBIBYTE },
  },
  guardrail: {
    prefix: "gr",
    notFound: "guardrail_not_found",
    limits: { maxCount: 100, maxBytes: MEBIBYTE },
  },
};

const UNIQUE_VIOLATION = "23505";
const FOREIGN_KEY_VIOLATION = "23503";

function inUse(cause?: unknown): GatewayError {
  const message =
    "The operator has set the guardrail for the organization or for a key: it has to be taken away there first.";
  return new GatewayError("guardrail_in_use", message, { cause });
}

/** What organizations define for their requests to name. Every method throws 404 for another's. */
export class DefinitionService {
  readonly #dependencies: DefinitionsDependencies;
  readonly #kind: DefinitionKind;

  constructor(dependencies: DefinitionsDependencies, kind: DefinitionKind) {
    this.#dependencies = dependencies;
    this.#kind = kind;
  }

  /** Throws 409 where the name is taken, 403 where there are too many. */
  create(
    organizationId: string,
    { name, body }: Pick<DefinitionRecord, "name" | "body">,
    author: Author,
  ): Promise<DefinitionRecord> {
    const { sql, clock } = this.#dependencies;
    const { prefix, limits } = KINDS[this.#kind];
    const place = this.#place(organizationId, newId(prefix));
    const definition = { name, body, createdAtMs: clock.nowMs() };
    return this.#write(
      organizationId,
      insertDefinition(authored(sql, author), place, definition, limits, () => this.#tooMany()),
    );
  }

  list(organizationId: string): Promise<DefinitionRecord[]> {
    return listDefinitions(this.#dependencies.sql, organizationId, this.#kind);
  }

  async find(organizationId: string, id: string): Promise<DefinitionRecord> {
    const found = await findDefinition(this.#dependencies.sql, this.#place(organizationId, id));
    if (found === undefined) throw this.#notFound();
    return found;
  }

  /** Throws as `create` does, and what `changed` throws. */
  async change(
    organizationId: string,
    id: string,
    changed: (current: DefinitionRecord) => Pick<DefinitionRecord, "name" | "body">,
    author: Author,
  ): Promise<DefinitionRecord> {
    const { sql, clock } = this.#dependencies;
    const record = await this.#write(
      organizationId,
      changeDefinition(
        authored(sql, author),
        this.#place(organizationId, id),
        (current, isEnforced) => {
          if (isEnforced) throw inUse();
          return { ...changed(current), updatedAtMs: clock.nowMs() };
        },
        KINDS[this.#kind].limits,
        () => this.#tooMany(),
      ),
    );
    if (record === undefined) throw this.#notFound();
    return record;
  }

  async remove(organizationId: string, id: string, author: Author): Promise<void> {
    const { sql } = this.#dependencies;
    const place = this.#place(organizationId, id);
    const deleting = deleteDefinition(authored(sql, author), place);
    if (!(await this.#write(organizationId, deleting))) throw this.#notFound();
  }

  #place(organizationId: string, id: string) {
    return { organizationId, kind: this.#kind, id };
  }

  async #write<Result>(organizationId: string, writing: Promise<Result>): Promise<Result> {
    try {
      return await writing;
    } catch (error) {
      if (sqlState(error) === FOREIGN_KEY_VIOLATION) throw inUse(error);
      if (sqlState(error) !== UNIQUE_VIOLATION) throw error;
      const message = `The organization has a ${this.#kind} of this name already.`;
      throw new GatewayError("name_taken", message, { param: "name", cause: error });
    } finally {
      // Others learn of it from the change feed.
      this.#dependencies.known.forget(organizationId);
    }
  }

  #notFound(): GatewayError {
    return new GatewayError(KINDS[this.#kind].notFound, `There is no such ${this.#kind}.`);
  }

  #tooMany(): GatewayError {
    const { maxCount, maxBytes } = KINDS[this.#kind].limits;
    return new GatewayError(
      "quota_exceeded",
      `An organization can have at most ${maxCount} ${this.#kind}s, of ${maxBytes} bytes together.`,
    );
  }
}
