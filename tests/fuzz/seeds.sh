# seeds.sh - to be sourced: what each reader of readers.c begins from.
#
# seeds READER FOLDER: the files, one a line, FOLDER being the recorded outputs of the
# original programs; and what lies in tests/fuzz/READER, where a file that once
# uncovered a fault belongs. Large files are left out: replay.c and fuzz.sh want small ones.
fuzz_dir=$(dirname "${BASH_SOURCE[0]}")
seeds() {
    case $1 in
        safetensors)    find "$2/llama/safetensors_edge" -name '*.safetensors' ;;
        gguf)           find "$fuzz_dir/../data/gguf" -name '*.gguf' ;;
        config)         find "$2/llama" -name 'config*.json' ;;
        index)          find "$2/llama" -name 'model.safetensors.index.json' ;;
        adapter-config) find "$2" -name adapter_config.json ;;
        json-lines)     ;;
        tokens)         find "$2/llama" -name 'fwd_inputs.safetensors' ;;
        prompts)        find "$fuzz_dir/json-lines" -type f ;;
        pickle)         find "$2/llama" -name .metadata ;;
        zip)            find "$2/llama" -name '*_zip*.pt' ;;
        torch)          find "$2/llama" -name '*.pt' -path '*torch_pickle*' ;;
        image)          find "$fuzz_dir/../data/images" -type f ! -name '*.json' ;;
        tokenizer)      find "$fuzz_dir/../data/tokenizers" -name '*.json' ! -name recorded.json -o -name '*.model' ;;
        records)        ;;
        sentencepiece)  find "$2" -name tiny_tokenizer.model ;;
        template)       find "$fuzz_dir/../data/templates" "$fuzz_dir/../../src/inputs/chat/templates" -name '*.jinja' ;;
        request)        ;;
        recipe)         find "$fuzz_dir/../../demo" -name '*.recipe' ;;
        *)              echo "seeds.sh: no reader '$1'" >&2; return 1 ;;
    esac
    [ ! -d "$fuzz_dir/$1" ] || find "$fuzz_dir/$1" -type f
}
small_seeds() { seeds "$@" | while IFS= read -r file; do [ "$(stat -c %s "$file")" -gt 16384 ] || printf '%s\n' "$file"; done | LC_ALL=C sort; }
