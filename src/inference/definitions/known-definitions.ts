import type { Query } from "../../../db/client.ts";
import {
  type DefinitionRecord,
  definitionsOf,
  type OrganizationDefinitions as StoredDefinitions,
} from "../../../db/queries/definitions.ts";
import { GatewayError } from "../../lib/errors.ts";
import { OrganizationCache } from "../../lib/organization-cache.ts";
import type { Guardrail, GuardrailRule } from "../guardrails/screening/guardrail.ts";

/** Organizations whose definitions are in memory at a time: each has at most a few megabytes of them. */
const MAX_ORGANIZATIONS = 500;

/** What a request that names it gets of a preset, in the fields of chat completions. */
export interface Preset {
  readonly model: string | null;
  readonly system: string | null;
  readonly parameters: Readonly<Record<string, unknown>>;
}

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

  /** Those that hold for the key anyway, and the one that a request names. Throws 404. */
  guardrails(keyId: string, named: string | undefined): readonly Guardrail[] {
    const ids = [this.#defaults.get(""), this.#defaults.get(keyId)];
    if (named !== undefined) {
      const found = this.find("guardrail", named);
      if (found === undefined) throw noGuardrail();
      ids.push(found.id);
    }
    const found = [...new Set(ids)].flatMap((id) => (id ? [this.#byId.get(id)] : []));
    return found.flatMap((record) =>
      record ? [{ id: record.id, rules: record.body.rules as readonly GuardrailRule[] }] : [],
    );
  }

  find(kind: DefinitionRecord["kind"], nameOrId: string): DefinitionRecord | undefined {
    const byId = this.#byId.get(nameOrId);
    return byId?.kind === kind ? byId : this.#byName.get(`${kind} ${nameOrId}`);
  }
}

/** Presets and guardrails as requests name them, kept until the change feed reports a change of them. */
export class DefinitionCache {
  readonly #known: OrganizationCache<OrganizationDefinitions>;

  constructor(read: <Result>(query: Query<Result>) => Promise<Result>) {
    this.#known = new OrganizationCache(
      MAX_ORGANIZATIONS,
      async (organizationId) =>
        new OrganizationDefinitions(await read(definitionsOf(organizationId))),
    );
  }

  /** At once where the organization's are known. Throws, or rejects with, 404. */
  preset(organizationId: string, nameOrId: string): Preset | Promise<Preset> {
    const known = this.#known.of(organizationId);
    return known instanceof Promise
      ? known.then((definitions) => presetIn(definitions, nameOrId))
      : presetIn(known, nameOrId);
  }

  /** Undefined where none holds for a call. At once where they are known. Throws, or rejects with, 404. */
  guardrails(
    organizationId: string,
    keyId: string,
    named: string | undefined,
  ): readonly Guardrail[] | undefined | Promise<readonly Guardrail[] | undefined> {
    const known = this.#known.of(organizationId);
    return known instanceof Promise
      ? known.then((definitions) => guardrailsIn(definitions, keyId, named))
      : guardrailsIn(known, keyId, named);
  }

  forget(organizationId: string): void {
    this.#known.forget(organizationId);
  }

  forgetAll(): void {
    this.#known.forgetAll();
  }
}

function guardrailsIn(
  definitions: OrganizationDefinitions,
  keyId: string,
  named: string | undefined,
): readonly Guardrail[] | undefined {
  if (definitions.isEmpty && named === undefined) return undefined;
  const guardrails = definitions.guardrails(keyId, named);
  return guardrails.length === 0 ? undefined : guardrails;
}

function noGuardrail(): GatewayError {
  return new GatewayError("guardrail_not_found", "There is no guardrail of that name or id.", {
    param: "guardrail",
  });
}

function presetIn(definitions: OrganizationDefinitions, nameOrId: string): Preset {
  const found = definitions.find("preset", nameOrId);
  if (found !== undefined) return found.body as unknown as Preset;
  throw new GatewayError("preset_not_found", "There is no preset of that name or id.", {
    param: "preset",
  });
}
