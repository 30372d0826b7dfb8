/** Jobs of one organization that have not ended. */
export const MAX_RUNNING_JOBS = 25;
/** Tuned models of one organization. */
export const MAX_TUNED_MODELS = 1_000;
/** From the order until the provider has it: a provider out of reach for longer fails the job. */
export const MAX_STARTING_MS = 24 * 3_600_000;
/** From then until its end: a training that never ends fails, and is cancelled at the provider. */
export const MAX_RUNNING_MS = 7 * 24 * 3_600_000;
/** Answers in a row that make no sense, or know of no such job, after which the job fails. */
export const MAX_USELESS_ANSWERS = 8;
/** How often an order is placed whose fate could not be found out, or that the provider was too busy for. */
export const MAX_ORDERS = 1_000;
/** How long an order whose answer was not heard may take to show at the provider. */
export const ORDER_SETTLES_MS = 5_000;
/** After so many failed tries what is left at the provider is left there. */
export const MAX_CLEAN_UP_TRIES = 20;
/** For one call of the provider, and for handing over a file. */
export const CALL_TIMEOUT_MS = 60_000;
export const UPLOAD_TIMEOUT_MS = 1_800_000;
