import { describeMoney } from "./money.ts";
import { openSeveralMoney } from "./several-money.ts";

describeMoney(openSeveralMoney);
