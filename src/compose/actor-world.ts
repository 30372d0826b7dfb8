import { apiKeyActor } from "../../actors/api-key/actor.ts";
import { endpointActor } from "../../actors/endpoint/actor.ts";
import { organizationActor } from "../../actors/organization/actor.ts";
import { type ActorEnvironment, ActorRegistry } from "../../actors/runtime/registry.ts";
import type { Clock } from "../lib/clock.ts";

/** The actors of this process and the world they see. */
export function createActorWorld(dependencies: {
  readonly clock: Clock;
  readonly read: ActorEnvironment["read"];
  readonly commit: ActorEnvironment["commit"];
}) {
  const { clock, read, commit } = dependencies;
  const context = {
    get nowMs(): number {
      return clock.nowMs();
    },
    random: Math.random,
  };
  const environment: ActorEnvironment = {
    clock,
    turnContext: () => context,
    commit,
    read,
  };
  return {
    keys: new ActorRegistry(apiKeyActor, environment),
    organizations: new ActorRegistry(organizationActor, environment),
    endpoints: new ActorRegistry(endpointActor, environment),
  };
}

export type ActorWorld = ReturnType<typeof createActorWorld>;
