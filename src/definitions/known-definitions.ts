import type { Query } from "../../db/client.ts";
import { type DefinitionRecord, definitionsOf } from "../../db/queries/definitions.ts";
import { GatewayError } from "../lib/errors.ts";
import { OrganizationCache } from "../lib/organization-cache.ts";

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

  constructor(records: readonly DefinitionRecord[]) {
    for (const record of records) {
      this.#byId.set(record.id, record);
      this.#byName.set(`${record.kind} ${record.name}`, record);
    }
  }

  find(kind: DefinitionRecord["kind"], nameOrId: string): DefinitionRecord | undefined {
    const byId = this.#byId.get(nameOrId);
    return byId?.kind === kind ? byId : this.#byName.get(`${kind} ${nameOrId}`);
  }
}

/** Presets and guardrails as requests name them, kept until the change feed reports a change of them. */
export class KnownDefinitions {
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

  forget(organizationId: string): void {
    this.#known.forget(organizationId);
  }

  forgetAll(): void {
    this.#known.forgetAll();
  }
}

function presetIn(definitions: OrganizationDefinitions, nameOrId: string): Preset {
  const found = definitions.find("preset", nameOrId);
  if (found !== undefined) return found.body as unknown as Preset;
  throw new GatewayError("preset_not_found", "There is no preset of that name or id.", {
    param: "preset",
  });
}
