interface Meaning {
  readonly text: string;
  /** The page with a remedy, and the label of its link. */
  readonly page?: string;
  readonly action?: string;
}

const MEANINGS: Readonly<Record<string, Meaning>> = {
  budget_exhausted: {
    text: "The request would exceed a budget of the key, the user or a tag.",
    page: "keys",
    action: "Raise a budget",
  },
  client_closed_request: {
    text: "The client closed the connection before the answer was complete.",
  },
  content_policy_violation: {
    text: "A guardrail or the provider's safety filter blocked the request.",
  },
  context_length_exceeded: { text: "The request is longer than the model's context." },
  insufficient_credits: {
    text: "The balance did not cover the maximum cost of the request.",
    page: "settings/billing",
    action: "Top up",
  },
  internal: { text: "The gateway failed, or its process died before the answer was complete." },
  invalid_body: { text: "The request body did not match the API." },
  key_inactive: { text: "The key is switched off.", page: "keys", action: "View keys" },
  key_expired: { text: "The key has expired.", page: "keys", action: "View keys" },
  missing_scope: { text: "The key does not have the scope.", page: "keys", action: "View keys" },
  model_not_allowed: {
    text: "The key is not allowed to use this model.",
    page: "keys",
    action: "Allow the model",
  },
  model_not_found: {
    text: "The model does not exist.",
    page: "models",
    action: "View models",
  },
  no_provider_available: { text: "No provider of the model was available." },
  overloaded: { text: "The limit of parallel calls was reached." },
  provider_error: { text: "All attempted providers failed." },
  provider_rejected: { text: "The provider rejected the request as invalid." },
  provider_timeout: { text: "The provider did not answer in time." },
  rate_limit_exceeded: {
    text: "The key or the provider has reached its rate limit.",
    page: "keys",
    action: "Raise a limit",
  },
  unsupported_parameter: { text: "The model does not support a field of the request." },
};

/** The error codes that have a meaning here, for the suggestions of a filter. */
export const ERROR_CODES: readonly string[] = Object.keys(MEANINGS);

/** Returns the meaning of an error code, or undefined if the dashboard has none for it. */
export function meaningOf(code: string): Meaning | undefined {
  return MEANINGS[code];
}
