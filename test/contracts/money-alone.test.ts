import { openAloneMoney } from "./alone-money.ts";
import { describeMoney } from "./money.ts";

describeMoney(openAloneMoney);
