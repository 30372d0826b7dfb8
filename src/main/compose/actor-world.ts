import { apiKeyActor } from "../../../actors/api-key/actor.ts";
import { endpointActor } from "../../../actors/endpoint/actor.ts";
import { organizationActor } from "../../../actors/organization/actor.ts";
import { turnContextOf } from "../../../actors/runtime/definition.ts";
import { type ActorEnvironment, ActorRegistry } from "../../../actors/runtime/registry.ts";
import { subjectBudgetActor } from "../../../actors/subject-budget/actor.ts";
import type { Clock } from "../../lib/clock.ts";
import type { ChangeFeed } from "../../platform/cluster/change-feed.ts";

/**
 * Creates the registries of this process's actors, which drop an actor when the change feed reports a change of its
 * rows.
 */
export function createActorWorld(dependencies: {
  readonly changes: ChangeFeed;
  readonly clock: Clock;
  readonly read: ActorEnvironment["read"];
  readonly commit: ActorEnvironment["commit"];
}) {
  const { changes, clock, read, commit } = dependencies;
  const environment: ActorEnvironment = {
    clock,
    context: turnContextOf(clock, Math.random),
    commit,
    read,
  };
  const world = {
    keys: new ActorRegistry(apiKeyActor, environment),
    organizations: new ActorRegistry(organizationActor, environment),
    subjectBudgets: new ActorRegistry(subjectBudgetActor, environment),
    endpoints: new ActorRegistry(endpointActor, environment),
  };
  changes.invalidate("api-key", world.keys);
  changes.on("key-owner", (ownerId) =>
    world.keys.forgetWhere(
      ({ record }) => record?.teamId === ownerId || record?.ownerId === ownerId,
    ),
  );
  changes.invalidate("organization", world.organizations);
  changes.invalidate("subject-budget", world.subjectBudgets);
  return world;
}
