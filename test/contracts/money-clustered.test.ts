import { openClusteredMoney } from "./clustered-money.ts";
import { describeMoney } from "./money.ts";

describeMoney(openClusteredMoney);
