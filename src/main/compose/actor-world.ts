import { apiKeyActor } from "../../../actors/api-key/actor.ts";
import { endpointActor } from "../../../actors/endpoint/actor.ts";
import { organizationActor } from "../../../actors/organization/actor.ts";
import { turnContextOf } from "../../../actors/runtime/definition.ts";
import { type ActorEnvironment, ActorRegistry } from "../../../actors/runtime/registry.ts";
import { subjectBudgetActor } from "../../../actors/subject-budget/actor.ts";
import type { Clock } from "../../lib/clock.ts";

/** The actors of this process and the environment that they run in. */
export function createActorWorld(dependencies: {
  readonly clock: Clock;
  readonly read: ActorEnvironment["read"];
  readonly commit: ActorEnvironment["commit"];
}) {
  const { clock, read, commit } = dependencies;
  const environment: ActorEnvironment = {
    clock,
    context: turnContextOf(clock, Math.random),
    commit,
    read,
  };
  return {
    keys: new ActorRegistry(apiKeyActor, environment),
    organizations: new ActorRegistry(organizationActor, environment),
    subjectBudgets: new ActorRegistry(subjectBudgetActor, environment),
    endpoints: new ActorRegistry(endpointActor, environment),
  };
}

export type ActorWorld = ReturnType<typeof createActorWorld>;
