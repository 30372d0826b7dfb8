# Runs the blocks of a page in one shell. Reads the path of each from standard input, and prints the
# status after a record separator when the block has ended.
exec 3<&0 </dev/null
while IFS= read -r PAGE_BLOCK <&3; do
  . "$PAGE_BLOCK"
  printf '\x1e%s\x1e' "$?"
done
