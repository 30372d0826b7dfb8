import type { RequestRecord } from "./interface.ts";
import {
  Histogram,
  type MetricDescription,
  type MetricRegistry,
  type Sample,
} from "./metric-registry.ts";

/**
 * Maximum pairs of method and route. Routes are patterns, so there are only as many as the gateway
 * has routes.
 */
const MAX_ROUTE_SERIES = 300;
/** Maximum pairs of model and provider that were called. */
const MAX_MODEL_SERIES = 500;
const MAX_ERROR_SERIES = 200;
const NANO_PER_USD = 1e9;
const DURATION_BOUNDS_SECONDS = [
  0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600,
];
const FIRST_TOKEN_BOUNDS_SECONDS = [
  0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 30, 60, 120,
];
/**
 * Error codes that are reported as 0 from the start, so that an alert on their rate sees the first
 * rejection.
 */
const REFUSAL_CODES = ["rate_limit_exceeded", "budget_exhausted", "insufficient_credits"];

interface RouteSeries {
  readonly duration: Histogram;
  /** Requests by status. */
  readonly statuses: Map<number, number>;
}

interface ModelSeries {
  readonly firstToken: Histogram;
  readonly statuses: Map<number, number>;
  promptTokens: number;
  completionTokens: number;
  /** A double holds nano-USD exactly up to nine million USD. */
  costNano: number;
}

interface ErrorSeries {
  count: number;
}

/** The counters of finished requests. */
export class RequestMetrics {
  readonly #routes = new BoundedSeries<RouteSeries>(MAX_ROUTE_SERIES, () => ({
    duration: new Histogram(DURATION_BOUNDS_SECONDS),
    statuses: new Map(),
  }));
  readonly #models = new BoundedSeries<ModelSeries>(MAX_MODEL_SERIES, () => ({
    firstToken: new Histogram(FIRST_TOKEN_BOUNDS_SECONDS),
    statuses: new Map(),
    promptTokens: 0,
    completionTokens: 0,
    costNano: 0,
  }));
  readonly #errors = new BoundedSeries<ErrorSeries>(MAX_ERROR_SERIES, () => ({ count: 0 }));

  constructor(registry: MetricRegistry) {
    for (const code of REFUSAL_CODES) this.#errors.get(code);
    for (const [description, samples] of this.#metrics()) {
      registry.register(description, () => samples(description.name));
    }
  }

  count(request: RequestRecord): void {
    const route = this.#routes.get(request.route, request.method);
    route.duration.observe(request.latencyMs / 1000);
    increment(route.statuses, request.status);
    // Without a provider the model is the caller's text and no name of the catalogue.
    if (request.model !== undefined && request.provider !== undefined) {
      this.#countModel(this.#models.get(request.model, request.provider), request);
    }
    if (request.errorCode !== undefined) this.#errors.get(request.errorCode).count++;
  }

  #countModel(series: ModelSeries, request: RequestRecord): void {
    increment(series.statuses, request.status);
    series.promptTokens += request.promptTokens ?? 0;
    series.completionTokens += request.completionTokens ?? 0;
    if (request.costNano !== undefined) series.costNano += Number(request.costNano);
    if (request.firstTokenMs !== undefined) series.firstToken.observe(request.firstTokenMs / 1000);
  }

  #metrics(): [MetricDescription, (name: string) => Iterable<Sample>][] {
    return [
      [counter("gateway_requests_total", "Finished requests."), () => this.#requests()],
      [
        histogram("gateway_request_duration_seconds", "From arrival to the end of the answer."),
        (name) => this.#durations(name),
      ],
      [
        counter("gateway_errors_total", "Requests that ended with an error, by its code."),
        () => this.#errorCounts(() => true),
      ],
      [
        counter(
          "gateway_refusals_total",
          "Requests rejected because of a rate limit, a budget or credits.",
        ),
        () => this.#errorCounts((code) => REFUSAL_CODES.includes(code)),
      ],
      [
        counter("gateway_model_requests_total", "Requests that reached a provider."),
        () => this.#modelRequests(),
      ],
      [counter("gateway_tokens_total", "Tokens billed, by kind."), () => this.#tokens()],
      [
        counter("gateway_cost_usd_total", "Charges in USD, platform fee included."),
        () => this.#costs(),
      ],
      [
        histogram("gateway_time_to_first_token_seconds", "From arrival to a stream's first event."),
        (name) => this.#firstTokens(name),
      ],
    ];
  }

  *#requests(): Iterable<Sample> {
    for (const [route, method, { statuses }] of this.#routes.entries()) {
      for (const [status, value] of statuses) yield { labels: { method, route, status }, value };
    }
  }

  *#durations(name: string): Iterable<Sample> {
    for (const [route, method, series] of this.#routes.entries()) {
      yield* series.duration.samples(name, { method, route });
    }
  }

  *#errorCounts(isIncluded: (code: string) => boolean): Iterable<Sample> {
    for (const [code, , series] of this.#errors.entries()) {
      if (isIncluded(code)) yield { labels: { code }, value: series.count };
    }
  }

  *#modelRequests(): Iterable<Sample> {
    for (const [model, provider, { statuses }] of this.#models.entries()) {
      for (const [status, value] of statuses) yield { labels: { model, provider, status }, value };
    }
  }

  *#tokens(): Iterable<Sample> {
    for (const [model, provider, series] of this.#models.entries()) {
      yield { labels: { model, provider, kind: "prompt" }, value: series.promptTokens };
      yield { labels: { model, provider, kind: "completion" }, value: series.completionTokens };
    }
  }

  *#costs(): Iterable<Sample> {
    for (const [model, provider, { costNano }] of this.#models.entries()) {
      yield { labels: { model, provider }, value: costNano / NANO_PER_USD };
    }
  }

  *#firstTokens(name: string): Iterable<Sample> {
    for (const [model, provider, { firstToken }] of this.#models.entries()) {
      yield* firstToken.samples(name, { model, provider });
    }
  }
}

function increment(counts: Map<number, number>, status: number): void {
  counts.set(status, (counts.get(status) ?? 0) + 1);
}

function counter(name: string, help: string): MetricDescription {
  return { name, help, type: "counter" };
}

function histogram(name: string, help: string): MetricDescription {
  return { name, help, type: "histogram" };
}

const OTHER = "other";

/**
 * The series of a metric, one for each pair of label values, created on first use. Pairs beyond `maximum`
 * share the series "other", so no input can grow memory or the scrape.
 */
class BoundedSeries<Series> {
  readonly #create: () => Series;
  readonly #byFirst = new Map<string, Map<string, Series>>();
  #remaining: number;
  #overflow: Series | undefined;

  constructor(maximum: number, create: () => Series) {
    this.#remaining = maximum;
    this.#create = create;
  }

  get(first: string, second = ""): Series {
    return this.#byFirst.get(first)?.get(second) ?? this.#add(first, second);
  }

  *entries(): Generator<readonly [first: string, second: string, series: Series]> {
    for (const [first, bySecond] of this.#byFirst) {
      for (const [second, series] of bySecond) yield [first, second, series];
    }
    if (this.#overflow !== undefined) yield [OTHER, OTHER, this.#overflow];
  }

  #add(first: string, second: string): Series {
    if (this.#remaining === 0) {
      this.#overflow ??= this.#create();
      return this.#overflow;
    }
    this.#remaining--;
    const series = this.#create();
    const bySecond = this.#byFirst.get(first);
    if (bySecond) bySecond.set(second, series);
    else this.#byFirst.set(first, new Map([[second, series]]));
    return series;
  }
}
