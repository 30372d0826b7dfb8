import { Validator } from "@seriousme/openapi-schema-validator";

/** Returns the OpenAPI document of a gateway with each reference replaced by its target. */
export async function fetchResolvedDocument<Document>(baseUrl: string): Promise<Document> {
  const specification = (await (await fetch(`${baseUrl}/openapi.json`)).json()) as never;
  return new Validator().resolveRefs({ specification }) as Document;
}
