interface Meaning {
  readonly text: string;
  /** The page on which something can be done about it, and what. */
  readonly page?: string;
  readonly action?: string;
}

const MEANINGS: Readonly<Record<string, Meaning>> = {
  budget_exhausted: {
    text: "A budget of the key, the user or a tag has no room for it.",
    page: "keys",
    action: "Raise a budget",
  },
  client_closed_request: { text: "The client went away before the answer was complete." },
  content_policy_violation: { text: "A guardrail, or the provider's safety filter, blocked it." },
  context_length_exceeded: { text: "It is longer than the model's context." },
  insufficient_credits: {
    text: "The balance had no room for what it could cost.",
    page: "settings",
    action: "Top up",
  },
  invalid_body: { text: "Its body was not as the API describes it." },
  key_inactive: { text: "Its key is switched off.", page: "keys", action: "Look at the keys" },
  key_expired: { text: "Its key has expired.", page: "keys", action: "Look at the keys" },
  missing_scope: { text: "Its key lacks the scope.", page: "keys", action: "Look at the keys" },
  model_not_allowed: {
    text: "Its key may not use this model.",
    page: "keys",
    action: "Allow the model",
  },
  model_not_found: {
    text: "There is no such model.",
    page: "models",
    action: "Look at the models",
  },
  no_provider_available: { text: "No provider of the model was available." },
  overloaded: { text: "As many calls were running as may." },
  provider_error: { text: "Every provider that was tried failed." },
  provider_rejected: { text: "The provider rejected the request as invalid." },
  provider_timeout: { text: "The provider did not answer in time." },
  rate_limit_exceeded: {
    text: "The key, or the provider, takes no more requests in this minute.",
    page: "keys",
    action: "Raise a limit",
  },
  unsupported_parameter: { text: "The model does not have a field that it set." },
};

/** What an error code of requests means, where that is known here. */
export function meaningOf(code: string): Meaning | undefined {
  return MEANINGS[code];
}
