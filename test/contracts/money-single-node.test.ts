import { describeMoney } from "./money.ts";
import { openSingleNodeMoney } from "./single-node-money.ts";

describeMoney(openSingleNodeMoney);
