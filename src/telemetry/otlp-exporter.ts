import { ExportResultCode } from "@opentelemetry/core";
import {
  createOtlpHttpExportDelegate,
  httpAgentFactoryFromOptions,
} from "@opentelemetry/otlp-exporter-base/node-http";
import type { ISerializer } from "@opentelemetry/otlp-transformer";
import type { CollectorConfig } from "../config/telemetry-settings.ts";
import type { Telemetry } from "./interface.ts";

export interface OtlpExporterOptions<Batch> {
  readonly collector: CollectorConfig;
  readonly serializer: ISerializer<Batch, unknown>;
  /** What is sent, for the log. */
  readonly what: "traces" | "metrics";
  readonly log: Telemetry["log"];
}

/** Of an export with its repetitions. */
const EXPORT_TIMEOUT_MS = 5_000;
/** Those that follow each other wait for the one before, except the last one of a gateway that ends. */
const MAX_CONCURRENT = 2;
const METRIC_NAMES = { traces: "span", metrics: "metric_data_point" } as const;

/** Sends to a collector by OTLP over HTTP in protobuf, and repeats what it asks to have repeated. */
export class OtlpExporter<Batch> {
  readonly #delegate: ReturnType<typeof createOtlpHttpExportDelegate<Batch, unknown>>;
  readonly #what: string;
  readonly #log: Telemetry["log"];
  #isFailing = false;

  constructor({ collector, serializer, what, log }: OtlpExporterOptions<Batch>) {
    this.#what = what;
    this.#log = log;
    const headers = { ...collector.headers, "content-type": "application/x-protobuf" };
    this.#delegate = createOtlpHttpExportDelegate(
      {
        url: collector.url,
        headers: async () => ({ ...headers }),
        concurrencyLimit: MAX_CONCURRENT,
        timeoutMillis: EXPORT_TIMEOUT_MS,
        compression: "none",
        agentFactory: httpAgentFactoryFromOptions({ keepAlive: true }),
      },
      serializer,
      "otlp_http",
      // It counts for a meter, and none is given.
      { name: METRIC_NAMES[what], countItems: () => 0 },
      undefined,
    );
  }

  /** Whether the collector has taken it. Never rejects. */
  async send(batch: Batch): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<unknown>();
    try {
      this.#delegate.export(batch, ({ code, error }) =>
        resolve(code === ExportResultCode.SUCCESS ? undefined : (error ?? new Error("refused"))),
      );
    } catch (error) {
      resolve(error);
    }
    const fault = await promise;
    if (fault !== undefined && !this.#isFailing) {
      this.#log.warn({ err: fault }, `the collector takes no ${this.#what}; they are dropped`);
    } else if (fault === undefined && this.#isFailing) {
      this.#log.info(`the collector takes ${this.#what} again`);
    }
    this.#isFailing = fault !== undefined;
    return fault === undefined;
  }
}
