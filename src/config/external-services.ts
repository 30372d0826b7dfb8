import { refuse } from "./config-error.ts";
import type { EnvironmentReader } from "./environment.ts";

const BUCKET = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;
const REGION = /^[A-Za-z0-9-]{1,64}$/;

interface StripeConfig {
  readonly secretKey: string;
  readonly webhookSecret: string | undefined;
  readonly apiBase: string;
}

interface S3Config {
  readonly bucket: string;
  readonly endpoint: string | undefined;
  readonly region: string | undefined;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
}

export interface ExternalServices {
  /** Undefined: the built-in test processor. */
  readonly stripe: StripeConfig | undefined;
  /** Undefined: files lie in the data folder. */
  readonly s3: S3Config | undefined;
  readonly otlpEndpoint: string | undefined;
}

/** Throws ConfigError. */
export function readExternalServices(reader: EnvironmentReader): {
  readonly services: ExternalServices;
  readonly warnings: readonly string[];
} {
  const services = {
    stripe: readStripe(reader),
    s3: reader.check(() => readS3(reader), undefined),
    otlpEndpoint: reader.url("OTEL_EXPORTER_OTLP_ENDPOINT"),
  };
  const warnings: string[] = [];
  if (services.stripe === undefined && reader.text("STRIPE_WEBHOOK_SECRET") !== undefined) {
    warnings.push("STRIPE_WEBHOOK_SECRET is ignored: STRIPE_SECRET_KEY is not set");
  }
  if (services.s3 === undefined && reader.text("S3_ENDPOINT") !== undefined) {
    warnings.push("S3_ENDPOINT is ignored: S3_BUCKET is not set");
  }
  return { services, warnings };
}

function readStripe(reader: EnvironmentReader): StripeConfig | undefined {
  const secretKey = reader.secret("STRIPE_SECRET_KEY");
  const webhookSecret = reader.secret("STRIPE_WEBHOOK_SECRET");
  const apiBase = reader.url("STRIPE_API_BASE");
  if (secretKey === undefined || apiBase === undefined) return undefined;
  return { secretKey, webhookSecret, apiBase };
}

function readS3(reader: EnvironmentReader): S3Config | undefined {
  const bucket = reader.text("S3_BUCKET");
  const region = reader.text("S3_REGION");
  const endpoint = reader.url("S3_ENDPOINT");
  const accessKeyId = reader.secret("S3_ACCESS_KEY_ID");
  const secretAccessKey = reader.secret("S3_SECRET_ACCESS_KEY");
  if (bucket !== undefined && !BUCKET.test(bucket)) {
    throw refuse("S3_BUCKET", bucket, "the name of a bucket");
  }
  if (region !== undefined && !REGION.test(region)) {
    throw refuse("S3_REGION", region, "the name of a region like eu-central-1");
  }
  if (bucket === undefined) return undefined;
  if (reader.text("S3_ACCESS_KEY_ID") === undefined) {
    throw refuse("S3_ACCESS_KEY_ID", undefined, "set together with S3_BUCKET");
  }
  if (reader.text("S3_SECRET_ACCESS_KEY") === undefined) {
    throw refuse("S3_SECRET_ACCESS_KEY", undefined, "set together with S3_BUCKET");
  }
  // Undefined only where their faults are kept, and stop the start.
  return {
    bucket,
    endpoint,
    region,
    accessKeyId: accessKeyId ?? "",
    secretAccessKey: secretAccessKey ?? "",
  };
}
