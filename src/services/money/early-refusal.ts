import { GatewayError } from "../../lib/errors.ts";

/**
 * A hold on which its request had begun already was refused. What was begun is given up; a hold that is
 * asked for again, without beginning early, waits or is lowered where the contract says so.
 */
export class EarlyHoldRefused extends GatewayError {
  constructor() {
    super("insufficient_credits", "The money for this request was spent while it began.");
    this.name = "EarlyHoldRefused";
  }
}
