require "json"

def save(settings)
  File.write("cfg.json", JSON.generate(settings))
end

save({ "colour" => "blue" })
puts "saved"
