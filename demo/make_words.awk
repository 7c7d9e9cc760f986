# make_words.awk - examples of two text tasks over made-up words.
#
#   awk -v out=DIR -v train=N -v held=M -f make_words.awk
#
# A word is two to four syllables of a consonant and a vowel. Writes
#   say-train.jsonl, say-heldout.jsonl   {"prompt": "kolibu -> ", "completion": "kolibu"}
#   pig-train.jsonl, pig-heldout.jsonl   {"prompt": "kolibu -> ", "completion": "olibukay"}
# The held-out words are in neither training file. The same words on every
# machine: the generator is our own, its products stay below 2^53.

function below(n) {
    state = (state * 69069 + 12345) % 4294967296
    return int(state / 65536) % n
}

function word(    syllables, w) {
    syllables = 2 + below(3)
    for (w = ""; syllables > 0; syllables--)
        w = w substr("bdfghjklmnprstvwyz", 1 + below(18), 1) substr("aeiou", 1 + below(5), 1)
    return w
}

function example(w, completion) {
    return "{\"prompt\": \"" w " -> \", \"completion\": \"" completion "\"}"
}

function pig(w) { return substr(w, 2) substr(w, 1, 1) "ay" }

BEGIN {
    state = 20261121
    for (made = 0; made < held + train; ) {
        w = word()
        if (w in known)
            continue
        known[w] = 1
        part = made < held ? "heldout" : "train"
        print example(w, w) > (out "/say-" part ".jsonl")
        print example(w, pig(w)) > (out "/pig-" part ".jsonl")
        made++
    }
}
