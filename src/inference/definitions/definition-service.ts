import { authored } from "../../../db/authored.ts";
import { type Database, sqlState } from "../../../db/client.ts";
import { UNIQUE_VIOLATION } from "../../../db/error-states.ts";
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
import type { DefinitionCache } from "./definition-cache.ts";

export interface DefinitionsDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly cache: DefinitionCache;
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

const FOREIGN_KEY_VIOLATION = "23503";

function inUse(cause?: unknown): GatewayError {
  const message =
    "The operator has set this guardrail for the organization or for a key. It must be removed there first.";
  return new GatewayError("guardrail_in_use", message, { cause });
}

/**
 * Presets or guardrails of organizations, which requests name. Methods with an id throw 404 if the
 * organization has no such definition.
 */
export class DefinitionService {
  readonly #dependencies: DefinitionsDependencies;
  readonly #kind: DefinitionKind;

  constructor(dependencies: DefinitionsDependencies, kind: DefinitionKind) {
    this.#dependencies = dependencies;
    this.#kind = kind;
  }

  /** Creates a definition. Throws 409 if the name is in use, and 403 if the organization has too many. */
  create(
    organizationId: string,
    { name, body }: Pick<DefinitionRecord, "name" | "body">,
    author: Author,
  ): Promise<DefinitionRecord> {
    const { sql, clock } = this.#dependencies;
    const { prefix, limits } = KINDS[this.#kind];
    const key = this.#keyOf(organizationId, newId(prefix));
    const definition = { name, body, createdAtMs: clock.nowMs() };
    return this.#write(
      organizationId,
      insertDefinition(authored(sql, author), key, definition, limits, () => this.#tooMany()),
    );
  }

  list(organizationId: string): Promise<DefinitionRecord[]> {
    return listDefinitions(this.#dependencies.sql, organizationId, this.#kind);
  }

  async find(organizationId: string, id: string): Promise<DefinitionRecord> {
    const record = await findDefinition(this.#dependencies.sql, this.#keyOf(organizationId, id));
    if (record === undefined) throw this.#notFound();
    return record;
  }

  /** Changes a definition. Throws the errors of `create`, and errors that `changed` throws. */
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
        this.#keyOf(organizationId, id),
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
    const key = this.#keyOf(organizationId, id);
    const deletion = deleteDefinition(authored(sql, author), key);
    if (!(await this.#write(organizationId, deletion))) throw this.#notFound();
  }

  #keyOf(organizationId: string, id: string) {
    return { organizationId, kind: this.#kind, id };
  }

  async #write<Result>(organizationId: string, writing: Promise<Result>): Promise<Result> {
    try {
      return await writing;
    } catch (error) {
      if (sqlState(error) === FOREIGN_KEY_VIOLATION) throw inUse(error);
      if (sqlState(error) !== UNIQUE_VIOLATION) throw error;
      const message = `The organization already has a ${this.#kind} with this name.`;
      throw new GatewayError("name_taken", message, { param: "name", cause: error });
    } finally {
      // Other instances are notified by the change feed.
      this.#dependencies.cache.forget(organizationId);
    }
  }

  #notFound(): GatewayError {
    return new GatewayError(KINDS[this.#kind].notFound, `There is no such ${this.#kind}.`);
  }

  #tooMany(): GatewayError {
    const { maxCount, maxBytes } = KINDS[this.#kind].limits;
    return new GatewayError(
      "quota_exceeded",
      `An organization can have at most ${maxCount} ${this.#kind}s with a total size of ${maxBytes} bytes.`,
    );
  }
}
