import type { Database, Query } from "../../db/client.ts";
import { ProviderHealth } from "../calls/routing/provider-health.ts";
import type { RateWindows } from "../cluster/interface.ts";
import type { GatewayConfig } from "../config.ts";
import type { Suspensions } from "../http/authentication.ts";
import { AdministrativeRate } from "../http/pipeline.ts";
import type { Clock } from "../lib/clock.ts";
import type { CreditOrders } from "../money/credit-orders.ts";
import { OperatorCredit } from "../money/operator-credit.ts";
import { OrganizationAdministration } from "../organizations/organizations.ts";
import type { ModelIndex } from "../providers/catalogue/model-index.ts";
import type { Provider } from "../providers/interface.ts";
import type { ActorWorld } from "./actor-world.ts";

/** What operators reach, and what bounds the administration of organizations. */
export function composeAdministration(parts: {
  readonly config: GatewayConfig;
  readonly sql: Database;
  readonly clock: Clock;
  readonly instanceId: string;
  readonly world: ActorWorld;
  readonly suspensions: Suspensions;
  readonly orders: CreditOrders;
  readonly models: ModelIndex;
  readonly providers: ReadonlyMap<string, Provider>;
  readonly rates: RateWindows;
  read<Result>(query: Query<Result>): Promise<Result>;
}) {
  const { config, world } = parts;
  return {
    administrativeRate: new AdministrativeRate(parts.rates),
    admin: {
      organizations: new OrganizationAdministration({
        ...parts,
        organizations: world.organizations,
        defaults: { plan: config.plan, startingCreditNano: config.startingCreditNanoUsd },
      }),
      credit: new OperatorCredit({ ...parts, organizations: world.organizations }),
      providers: new ProviderHealth({ ...parts, endpoints: world.endpoints }),
    },
  };
}
