import type { RouteDefinition } from "../../http/route.ts";
import { batchObjectRoutes } from "./batch-objects.ts";
import { cacheRoute } from "./cache-state.ts";
import { conversationObjectRoutes } from "./conversation-objects.ts";
import { fileObjectRoutes } from "./file-objects.ts";
import { jobObjectRoutes } from "./job-objects.ts";
import type { ObjectServices } from "./object-access.ts";
import { responseObjectRoutes } from "./response-objects.ts";
import { storeObjectRoutes } from "./store-objects.ts";

/**
 * Returns the routes of stored objects, for sessions. The API's own routes of these objects are for secret keys, and
 * some of them call models. These read, cancel and delete only, see one member's objects if the role is self-only, and
 * record changes and reads of contents in the audit log.
 */
export function objectRoutes(services: ObjectServices): RouteDefinition[] {
  return [
    ...fileObjectRoutes(services),
    ...batchObjectRoutes(services),
    ...jobObjectRoutes(services),
    ...storeObjectRoutes(services),
    ...responseObjectRoutes(services),
    ...conversationObjectRoutes(services),
    cacheRoute(services),
  ];
}
