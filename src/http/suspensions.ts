import type { Query } from "../../db/client.ts";
import { suspendedOrganizations } from "../../db/queries/organizations.ts";

export interface SuspensionsDependencies {
  read<Result>(query: Query<Result>): Promise<Result>;
}

/**
 * Which organizations are suspended. The change feed makes what is known stale; the next request then waits
 * for the database, so no instance admits a call on an old answer.
 */
export class Suspensions {
  readonly #dependencies: SuspensionsDependencies;
  #suspended: ReadonlySet<string> | undefined;
  #loading: Promise<void> | undefined;
  #version = 0;

  constructor(dependencies: SuspensionsDependencies) {
    this.#dependencies = dependencies;
  }

  /** True where `includes` can be asked without waiting. */
  get isCurrent(): boolean {
    return this.#suspended !== undefined;
  }

  includes(organizationId: string): boolean {
    const suspended = this.#suspended!;
    return suspended.size > 0 && suspended.has(organizationId);
  }

  /** An organization was suspended, or is not any more. */
  forget(): void {
    this.#version++;
    this.#suspended = undefined;
  }

  /** Throws 503 where the database cannot be asked. */
  async refresh(): Promise<void> {
    while (this.#suspended === undefined) {
      this.#loading ??= this.#load().finally(() => {
        this.#loading = undefined;
      });
      await this.#loading;
    }
  }

  async #load(): Promise<void> {
    const version = this.#version;
    const ids = await this.#dependencies.read(suspendedOrganizations());
    // What changed while it was read may not be in it.
    if (version === this.#version) this.#suspended = new Set(ids);
  }
}
