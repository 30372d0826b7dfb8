import type { Query } from "../../../db/client.ts";
import {
  type DefinitionRecord,
  definitionsOf,
  type OrganizationDefinitions as StoredDefinitions,
} from "../../../db/queries/definitions.ts";
import type { ApiKeyRecord } from "../../lib/api-key-record.ts";
import { GatewayError } from "../../lib/errors.ts";
import { OrganizationCache } from "../../lib/organization-cache.ts";
import type { Guardrail, GuardrailRule } from "../guardrails/screening/guardrail.ts";

/** Organizations whose definitions are cached in memory. Each has at most a few megabytes of definitions. */
const MAX_ORGANIZATIONS = 500;

/** A preset, in the fields of chat completions, for requests that name it. */
export interface Preset {
  readonly model: string | null;
  readonly system: string | null;
  readonly parameters: Readonly<Record<string, unknown>>;
}

/** The key of a call, as far as its guardrails depend on it. */
type GuardedKey = Pick<ApiKeyRecord, "id" | "organizationId" | "team">;

class OrganizationDefinitions {
  readonly #byId = new Map<string, DefinitionRecord>();
  readonly #byName = new Map<string, DefinitionRecord>();
  readonly #defaults: StoredDefinitions["defaults"];

  constructor({ definitions, defaults }: StoredDefinitions) {
    this.#defaults = defaults;
    for (const record of definitions) {
      this.#byId.set(record.id, record);
      this.#byName.set(`${record.kind} ${record.name}`, record);
    }
  }

  get isEmpty(): boolean {
    return this.#byId.size === 0;
  }

  /**
   * Returns the enforced guardrails of the key, that of its team and the one that the request names. Throws 404
   * if the team's or the named guardrail does not exist.
   */
  guardrails(
    { id: keyId, team }: GuardedKey,
    guardrailName: string | undefined,
  ): readonly Guardrail[] {
    const ids = [this.#defaults.get(""), this.#defaults.get(keyId)];
    for (const name of [team?.guardrail, guardrailName]) {
      if (name === undefined || name === null) continue;
      const guardrail = this.find("guardrail", name);
      // A guardrail that a team demands is never skipped.
      if (guardrail === undefined) throw noGuardrail();
      ids.push(guardrail.id);
    }
    const enforced = [...new Set(ids)].flatMap((id) => (id ? [this.#byId.get(id)] : []));
    return enforced.flatMap((record) =>
      record ? [{ id: record.id, rules: record.body.rules as readonly GuardrailRule[] }] : [],
    );
  }

  find(kind: DefinitionRecord["kind"], nameOrId: string): DefinitionRecord | undefined {
    const byId = this.#byId.get(nameOrId);
    return byId?.kind === kind ? byId : this.#byName.get(`${kind} ${nameOrId}`);
  }
}

/** Caches the presets and guardrails of organizations until the change feed reports a change. */
export class DefinitionCache extends OrganizationCache<OrganizationDefinitions> {
  constructor(read: <Result>(query: Query<Result>) => Promise<Result>) {
    super(
      MAX_ORGANIZATIONS,
      async (organizationId) =>
        new OrganizationDefinitions(await read(definitionsOf(organizationId))),
    );
  }

  /**
   * Returns a preset. Returns it without a promise if the organization's definitions are cached. Throws, or
   * rejects with, 404 if the preset does not exist.
   */
  preset(organizationId: string, nameOrId: string): Preset | Promise<Preset> {
    const cached = this.of(organizationId);
    return cached instanceof Promise
      ? cached.then((definitions) => presetIn(definitions, nameOrId))
      : presetIn(cached, nameOrId);
  }

  /**
   * Returns the guardrails of a call, or undefined if it has none. Returns them without a promise if the
   * organization's definitions are cached. Throws, or rejects with, 404 if the named guardrail does not exist.
   */
  guardrails(
    key: GuardedKey,
    guardrailName: string | undefined,
  ): readonly Guardrail[] | undefined | Promise<readonly Guardrail[] | undefined> {
    const cached = this.of(key.organizationId);
    return cached instanceof Promise
      ? cached.then((definitions) => guardrailsIn(definitions, key, guardrailName))
      : guardrailsIn(cached, key, guardrailName);
  }
}

function guardrailsIn(
  definitions: OrganizationDefinitions,
  key: GuardedKey,
  guardrailName: string | undefined,
): readonly Guardrail[] | undefined {
  const isUnguarded = guardrailName === undefined && (key.team?.guardrail ?? null) === null;
  if (definitions.isEmpty && isUnguarded) return undefined;
  const guardrails = definitions.guardrails(key, guardrailName);
  return guardrails.length === 0 ? undefined : guardrails;
}

function noGuardrail(): GatewayError {
  return new GatewayError("guardrail_not_found", "There is no guardrail with that name or id.", {
    param: "guardrail",
  });
}

function presetIn(definitions: OrganizationDefinitions, nameOrId: string): Preset {
  const preset = definitions.find("preset", nameOrId);
  if (preset !== undefined) return preset.body as unknown as Preset;
  throw new GatewayError("preset_not_found", "There is no preset with that name or id.", {
    param: "preset",
  });
}
