import { createStripe } from "../../../billing/payments/stripe-processor.ts";
import type { GatewayConfig } from "../../../platform/config.ts";
import { type Finding, ok, wrong } from "./check-services.ts";

const NAME = "payments";
const TIMEOUT_MS = 10_000;

/** Reports the payment processor. With `isLive`, checks that Stripe accepts its key. */
export async function checkPayments(
  { stripe, testPayments }: Pick<GatewayConfig, "stripe" | "testPayments">,
  isLive: boolean,
): Promise<Finding> {
  if (stripe === undefined) {
    const test = "the test processor: no money moves, and credit costs nothing";
    return ok(NAME, testPayments ? test : "no payments are accepted");
  }
  const detail = `Stripe at ${stripe.apiBase}`;
  if (!isLive) return ok(NAME, `${detail}; key not checked, use --live`);
  try {
    await createStripe(stripe, TIMEOUT_MS).balance.retrieve();
    return ok(NAME, `${detail} accepts its key`);
  } catch (error) {
    return wrong(NAME, `${detail}: ${(error as Error).message}`);
  }
}
