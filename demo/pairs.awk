# pairs.awk - conversations about pictures as MiniCPM-V's fine-tuning reads them: a list in JSON, from paths on standard
# input. The answer is the file's name up to its first dot, the question is `ask`.
BEGIN { print "[" }
{
    file = $0
    sub(/.*\//, "", file)
    split(file, part, ".")
    printf "%s{\"id\": \"%d\", \"image\": \"%s\", \"conversations\": [", (NR > 1 ? ",\n" : ""), NR, $0
    printf "{\"role\": \"user\", \"content\": \"<image>\\n%s\"}, {\"role\": \"assistant\", \"content\": \"%s\"}]}", ask, part[1]
}
END { print "\n]" }
