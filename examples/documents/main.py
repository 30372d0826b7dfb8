"""Answers a question from documents (RAG): searches a vector store, and gives the passages to the model."""

import io
import os
import time

from openai import OpenAI

GATEWAY_URL = os.environ.get("GATEWAY_URL", "http://127.0.0.1:3000")
MODEL = os.environ.get("MODEL", "sandbox/chat")
DOCUMENTS = {
    "returns.md": "# Returns\n\nAn item can be returned within 30 days. Returns are free of charge.",
    "shipping.md": "# Shipping\n\nParcels leave on the day of the order. Delivery takes two to four days.",
    "warranty.md": "# Warranty\n\nAll devices have a warranty of two years from the day of delivery.",
}
QUESTION = "How long does delivery take?"

client = OpenAI(base_url=f"{GATEWAY_URL}/v1", api_key=os.environ["SECRET_KEY"])

store = client.vector_stores.create(name="Handbook")
for name, text in DOCUMENTS.items():
    file = client.files.create(file=(name, io.BytesIO(text.encode())), purpose="assistants")
    client.vector_stores.files.create(vector_store_id=store.id, file_id=file.id)
while store.file_counts.in_progress > 0 or store.file_counts.total < len(DOCUMENTS):
    time.sleep(0.2)
    store = client.vector_stores.retrieve(store.id)
print(f"Indexed {store.file_counts.completed} documents.")

found = client.vector_stores.search(store.id, query=QUESTION, max_num_results=2)
passages = [(result.filename, " ".join(part.text for part in result.content)) for result in found]
sources = "\n\n".join(f"[{number}] {text}" for number, (_, text) in enumerate(passages, start=1))

raw = client.chat.completions.with_raw_response.create(
    model=MODEL,
    messages=[
        {"role": "system", "content": f"Answer from these sources and cite them as [1]:\n\n{sources}"},
        {"role": "user", "content": QUESTION},
    ],
)
print(f"Question: {QUESTION}")
print(f"Answer: {raw.parse().choices[0].message.content}")
for number, (filename, text) in enumerate(passages, start=1):
    print(f"Source [{number}] {filename}: {' '.join(text.split())}")
print(f"The answer cost {raw.headers['x-gateway-cost']} USD.")
