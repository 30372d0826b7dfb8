"""Sends a file of requests as one batch, waits for it, and prints the answers and what they cost."""

import io
import json
import os
import time

from openai import OpenAI

GATEWAY_URL = os.environ.get("GATEWAY_URL", "http://127.0.0.1:3000")
MODEL = os.environ.get("MODEL", "sandbox/chat")
QUESTIONS = ["Count to 3", "Say hello", "Name a colour"]

client = OpenAI(base_url=f"{GATEWAY_URL}/v1", api_key=os.environ["SECRET_KEY"])

lines = [
    {
        "custom_id": f"question-{number}",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": MODEL, "messages": [{"role": "user", "content": question}]},
    }
    for number, question in enumerate(QUESTIONS, start=1)
]
content = "\n".join(json.dumps(line) for line in lines)
input_file = client.files.create(
    file=("questions.jsonl", io.BytesIO(content.encode())), purpose="batch"
)
batch = client.batches.create(
    input_file_id=input_file.id, endpoint="/v1/chat/completions", completion_window="24h"
)
print(f"Created a batch of {len(lines)} requests.")

while batch.status in ("validating", "in_progress", "finalizing"):
    time.sleep(0.5)
    batch = client.batches.retrieve(batch.id)
counts = batch.request_counts
print(f"The batch is {batch.status}: {counts.completed} completed, {counts.failed} failed.")

if batch.output_file_id:
    results = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
    for result in sorted(results, key=lambda result: result["custom_id"]):
        answer = result["response"]["body"]["choices"][0]["message"]["content"]
        print(f"{result['custom_id']}: {answer}")
    cost = sum(result["response"]["body"]["usage"].get("cost", 0) for result in results)
    print(f"The batch cost {cost:.9f} USD.")
